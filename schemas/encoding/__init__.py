"""Encodings that the wire formats are made of: protobuf fields, varints, base 36, base64."""
