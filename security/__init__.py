"""Keys, identities and decisions about them."""
