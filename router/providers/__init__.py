"""Vendors: one adapter a file, behind one seam."""
