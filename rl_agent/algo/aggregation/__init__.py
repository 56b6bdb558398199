"""How the losses of tokens become one number: each file gives every token its weight."""
