"""`dpose statement`: read, check, sign and pass on what an artefact guarantees."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpose.cli.artefacts import check_artefact
from dpose.cli.options import hanging, option, plain_console
from dpose.errors import DposeError

Artefact = Annotated[
    Path, typer.Argument(help="A run or model folder, a privacy.json, or a released picture, archive or video.")
]

Out = Annotated[Path | None, option("The file to write. Default: print it.")]


def show_statement(artefact: Artefact, json: Annotated[bool, option("As JSON.", "--json")] = False) -> None:
    """The statement in words."""
    from dpose.runs.statement_files import open_statement

    console, statement = plain_console(), open_statement(artefact).statement
    if json:
        typer.echo(statement.to_json(), nl=False)
        return
    console.print(hanging(statement.paragraph().splitlines(), console))


def check_statement(artefact: Artefact) -> None:
    """Hold a statement to the published JSON Schema, and compute its numbers again."""
    from dpose.privacy.ranges import upper
    from dpose.privacy.statement import SCHEMA
    from dpose.runs.statement_files import open_statement

    console, opened = plain_console(), open_statement(artefact)
    spent = opened.statement.verify()
    console.print(f"{opened.file}: as schema {SCHEMA} says", soft_wrap=True)
    console.print(
        "nothing is claimed, so there is nothing to add up"
        if spent is None
        else f"the recorded events cost epsilon {upper(spent, 6)}; {upper(opened.statement.epsilon or 0, 6)} is claimed"
    )
    console.print("Files and ledger were not looked at: that is dpose verify")


def schema(out: Out = None) -> None:
    """The published JSON Schema of statements."""
    import json

    from dpose.privacy.statement import statement_schema

    _give(json.dumps(statement_schema(), indent=2) + "\n", out)


def key(file: Annotated[Path, typer.Argument(help="The file of the private key to make.")]) -> None:
    """Make a key pair to sign statements with: FILE, for its owner alone, and FILE.pub for everybody."""
    from dpose.privacy.signing import new_key

    public = new_key(file)
    plain_console().print(
        f"Written: {file} (private: keep it secret) and {public} (publish it where those who check "
        "signatures know that it is yours)",
        soft_wrap=True,
    )


def sign_statement(
    artefact: Artefact, key: Annotated[Path, option("The private key, from dpose statement key.", "--key")]
) -> None:
    """Sign a statement, after checking that it adds up; the signature goes into a file beside it."""
    from dpose.privacy import signing
    from dpose.runs.statement_files import open_statement

    opened = open_statement(artefact)
    opened.statement.verify()
    made = signing.sign(opened.file, opened.statement, key)
    plain_console().print(
        f"Written: {signing.signature_file(opened.file)}, by key {signing.key_fingerprint(made.key)}. A statement that "
        "changes afterwards (dpose evaluate adds to it) has to be signed again",
        soft_wrap=True,
    )


def verify_statement(
    artefact: Artefact,
    key: Annotated[Path, option("The expected signer's public key, from a source that you trust.", "--key")],
) -> None:
    """Check a signature with a public key; then whatever `dpose verify` checks."""
    from dpose.privacy.signing import check_signature, key_fingerprint
    from dpose.runs.statement_files import open_statement

    console, opened = plain_console(), open_statement(artefact)
    found = check_signature(opened.file, opened.statement, key)
    lines = [
        f"the signature holds: the holder of the private key to {key_fingerprint(found.key)} signed just this file, "
        f"and so the seal {found.seal[:16]}... that binds it to what it is about; on {found.date}, as they say",
        "it does not show that the statement is true, nor whose key that is: know that from elsewhere",
    ]
    lines += check_artefact(opened.folder) if opened.folder else [opened.found]
    for line in lines:
        console.print(line, soft_wrap=True)


def export_statement(
    artefact: Artefact,
    registry: Annotated[bool, option("As an entry of OpenDP's Deployments Registry, in YAML.", "--registry")] = False,
    model_card: Annotated[bool, option("As the metadata of a model card, in YAML.", "--model-card")] = False,
    name: Annotated[str | None, option("Of the artefact. Default: its folder's or file's.")] = None,
    date: Annotated[str | None, option("Of publication, YYYY-MM-DD. Default: the statement's.")] = None,
    region: Annotated[str, option("Whom the data describe, or whose laws hold.")] = "not stated",
    author: Annotated[str | None, option("Of the entry. Default: the statement's contact.")] = None,
    out: Out = None,
) -> None:
    """The statement in the form of others, after checking that it adds up."""
    from dpose.runs.statement_files import card_metadata, open_statement, registry_entry

    if registry == model_card:
        raise DposeError("form-missing", "in which form?", fix="give --registry or --model-card")
    opened = open_statement(artefact)
    opened.statement.verify()
    if registry:
        import yaml

        entry = registry_entry(
            opened.statement, name or opened.name, date=date or "", region=region, author=author or ""
        )
        text = yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100)
    else:
        text = card_metadata(opened)
    _give(text, out)


def _give(text: str, out: Path | None) -> None:
    from dpose.files import write_atomic

    if out is None:
        typer.echo(text, nl=False)
        return
    write_atomic(out, text)
    plain_console().print(f"Written: {out}", soft_wrap=True)
