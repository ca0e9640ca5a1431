"""The pages of `tidemark top`: each makes sections out of the state of a broker; draws nothing."""
