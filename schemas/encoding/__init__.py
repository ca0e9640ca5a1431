"""Encodings that the wire formats consist of: protobuf fields, varints, base 36, base64."""
