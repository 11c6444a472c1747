"""The root rendezvous: the fallback that finds topics which repairs have left split."""
