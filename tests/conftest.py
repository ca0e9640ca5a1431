"""What every test needs: the packages of this repository, importable.

Appended, never put first: where a wheel is installed (the gate), it is the wheel that is tested;
in a bare checkout it is the checkout. Tests import each other's fakes as `tests.<...>`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
