"""Shadows's figures."""
