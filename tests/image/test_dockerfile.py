"""The Dockerfile is read as a builder reads it, and what nobody here knows is refused."""

from __future__ import annotations

import pytest

from tests.image import TREE
from tests.image.dockerfile import Copy, DockerfileError, Env, Run, Workdir, read

TEXT = """\
# a comment
FROM debian AS build
ENV A=1 B="two words"
RUN one \\
    # a comment within
    && two
WORKDIR /srv
COPY a b ./
FROM debian
COPY --from=build /srv /srv
USER 10001
EXPOSE 8000
CMD ["run", \\
     "it"]
"""


def test_stages_have_their_steps_in_order() -> None:
    build, image = read(TEXT)
    assert (build.name, build.base, image.name) == ("build", "debian", "")
    assert [type(step) for step in build.steps] == [Env, Run, Workdir, Copy]
    assert build.steps[0] == Env({"A": "1", "B": "two words"})
    command = build.steps[1]
    assert isinstance(command, Run) and command.command.split() == ["one", "&&", "two"]
    assert build.steps[3] == Copy(("a", "b"), "./")
    assert image.steps == [Copy(("/srv",), "/srv", "build")]
    assert (image.user, image.port, image.command) == ("10001", 8000, ("run", "it"))


@pytest.mark.parametrize("text", ["RUN x", "FROM a\nADD x y", "FROM a b c d"])
def test_what_is_not_known_is_refused(text: str) -> None:
    with pytest.raises(DockerfileError):
        read(text)


def test_image_of_the_product_runs_as_nobody_and_takes_what_was_built() -> None:
    build, image = read((TREE / "Dockerfile").read_text())
    assert (image.user, image.port, image.command[0]) == ("10001", 8000, "gunicorn")
    taken = [step for step in image.steps if isinstance(step, Copy)]
    assert {step.stage for step in taken} == {build.name}
    for step in build.steps:
        for source in step.sources if isinstance(step, Copy) else ():
            assert (TREE / source).exists(), source
