"""Vitis's figures."""
