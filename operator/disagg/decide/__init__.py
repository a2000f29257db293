"""What runs now -> decisions. Pure: whatever depends on the live objects is decided here, and read back from them."""
