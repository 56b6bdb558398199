"""Ray: placement, actors, bring-up. The only room that imports ray."""
