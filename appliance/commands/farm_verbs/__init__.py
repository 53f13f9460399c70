"""Verbs of `tigerchat farm`, a module for each family of them."""
