"""What is measured of Tidemark, one subject in each module."""
