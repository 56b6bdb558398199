"""Options of `algo/aggregation`: weight of each token's loss in the loss of the batch."""
