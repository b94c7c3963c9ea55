"""Assertions about the communication and the results of sharded programs, and about passes; random
programs."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.testing": (
        "CommunicationError",
        "DifferentProgramError",
        "DifferentResultsError",
        "assert_collectives",
        "assert_equivalent",
        "assert_pass",
        "collectives",
    ),
    "shardir.frontend.random_programs.programs": (
        "PassError",
        "assert_pass_equivalent",
        "random_program",
    ),
    "shardir.frontend.random_programs.scope": ("sampler",),
    "shardir.frontend.stories.story_files": ("Story", "StoryError", "StoryStep", "read_story"),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.random_programs.programs import (
        PassError as PassError,
        assert_pass_equivalent as assert_pass_equivalent,
        random_program as random_program,
    )
    from shardir.frontend.random_programs.scope import sampler as sampler
    from shardir.frontend.stories.story_files import (
        Story as Story,
        StoryError as StoryError,
        StoryStep as StoryStep,
        read_story as read_story,
    )
    from shardir.frontend.testing import (
        CommunicationError as CommunicationError,
        DifferentProgramError as DifferentProgramError,
        DifferentResultsError as DifferentResultsError,
        assert_collectives as assert_collectives,
        assert_equivalent as assert_equivalent,
        assert_pass as assert_pass,
        collectives as collectives,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
