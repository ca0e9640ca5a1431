"""What an audit records of a call, and how identical refusals are summed."""
