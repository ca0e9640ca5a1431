"""Who holds parts of the log, and what retention may remove."""
