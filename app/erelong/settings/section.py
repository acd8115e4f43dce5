"""The base of all sections: strict, frozen models, and errors that name a setting."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import InitErrorDetails, PydanticCustomError

from erelong.errors import Exit
from erelong.settings.names import NAME, PATH_NAME, VARIABLE

Name = Annotated[str, Field(pattern=NAME)]
PathName = Annotated[str, Field(pattern=PATH_NAME)]
Count = Annotated[int, Field(ge=1)]
Variable = Annotated[str, Field(pattern=VARIABLE)]


class ConfigError(Exit):
    """The settings are invalid; the text has one line per problem."""

    code: ClassVar[int] = 78

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def setting_fault(reason: str, *path: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("config", "{reason}", {"reason": reason}), loc=path, input=None)
