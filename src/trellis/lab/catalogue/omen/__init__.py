"""Omen's figures."""
