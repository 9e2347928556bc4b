"""Tool calls: what a request declares, and the formats in which models write them."""
