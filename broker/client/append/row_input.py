"""What programs need to make Arrow rows of text: for `tidemark produce`, and for their own."""

from schemas.arrow.columns import arrow, decode_schema
from schemas.arrow.ipc import BadArrow
from schemas.arrow.rows_of_json import rows_of_lines

__all__ = ["BadArrow", "arrow", "decode_schema", "rows_of_lines"]
