"""Ray: placement, actors, start and stop. The only package that imports ray."""
