"""`ManualAxisType`: the manual axes in the type of a value inside of `shard_map`."""

from dataclasses import dataclass

from shardir.frontend.argument_checks import as_items
from shardir.frontend.call_signatures import with_constructor_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location


@with_constructor_errors
@dataclass(frozen=True, kw_only=True)
class ManualAxisType:
    """The manual axes along which a value varies, holds partial sums, or is a reduced copy.

    Inside of `shard_map`, values vary along axes or are equal; unreduced and reduced axes of values
    exist outside only.
    """

    varying: frozenset[str] = frozenset()
    """The axes along which the devices may have different values."""
    unreduced: frozenset[str] = frozenset()
    """The axes along which the devices hold partial sums."""
    reduced: frozenset[str] = frozenset()
    """The axes along which the gradient of the value is unreduced."""

    def __post_init__(self) -> None:
        for name in ("varying", "unreduced", "reduced"):
            axes = getattr(self, name)
            if isinstance(axes, str) or not all(isinstance(axis, str) for axis in as_items(axes)):
                raise ArgumentError(
                    with_location(f"{name} of ManualAxisType is a set of names, got {brief(axes)}")
                )
            object.__setattr__(self, name, frozenset(axes))
        common = self.varying & (self.unreduced | self.reduced) | self.unreduced & self.reduced
        if common:
            listed = " and ".join(map(repr, sorted(common)))
            raise ArgumentError(
                with_location(
                    f"{self!r} names {listed} twice; a value varies along an axis, or is unreduced "
                    "or reduced along it"
                )
            )

    @property
    def vur(self) -> frozenset[str]:
        """All axes of the type."""
        return self.varying | self.unreduced | self.reduced
