"""All honest solutions."""

from __future__ import annotations

from typing import Final

from tests.honest.languages import LANGUAGES
from tests.honest.layouts import LAYOUTS
from tests.honest.plain import PLAIN
from tests.honest.plugins import PLUGINS
from tests.honest.runners import RUNNERS
from tests.honest.states import STATES

CASES: Final = (*PLAIN, *RUNNERS, *PLUGINS, *STATES, *LAYOUTS, *LANGUAGES)
