"""All honest solutions."""

from __future__ import annotations

from typing import Final

from tests.honest.asynchronous import ASYNCHRONOUS
from tests.honest.builds import BUILDS
from tests.honest.classes import CLASSES
from tests.honest.doctests import DOCTESTS
from tests.honest.doubles import DOUBLES
from tests.honest.files import FILES
from tests.honest.fixtures import FIXTURES
from tests.honest.languages import LANGUAGES
from tests.honest.layouts import LAYOUTS
from tests.honest.options import OPTIONS
from tests.honest.plain import PLAIN
from tests.honest.plugins import PLUGINS
from tests.honest.processes import PROCESSES
from tests.honest.states import STATES
from tests.honest.unittests import UNITTESTS

CASES: Final = (
    *PLAIN,
    *FIXTURES,
    *CLASSES,
    *UNITTESTS,
    *DOCTESTS,
    *OPTIONS,
    *ASYNCHRONOUS,
    *PLUGINS,
    *DOUBLES,
    *PROCESSES,
    *STATES,
    *FILES,
    *LAYOUTS,
    *BUILDS,
    *LANGUAGES,
)
