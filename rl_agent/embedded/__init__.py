"""The toy tasks and the tiny policy of `make train`.

No other package imports this one: the config names its classes.
"""
