"""The toy tasks and the tiny policy behind `make train`. Nothing else imports this package: the config names its classes."""
