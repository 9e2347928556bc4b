"""Files that are sent for their text: kept ones, and those within a message (spec/api.md §9)."""
