"""A signature is of one file, one seal and one key; everything else is refused in a line."""

import json
import stat
from dataclasses import replace

import pytest

from dpose.errors import DposeError
from dpose.privacy.signing import check_signature, new_key, sign, signature_file
from dpose.privacy.statement import Kind, PrivacyStatement
from refusals import refused


@pytest.fixture
def signed(tmp_path):
    """(file, statement, public key, private key) of a signed statement."""
    statement = PrivacyStatement(Kind.NONE, "image", n=3, seal="ab" * 32)
    file, private = tmp_path / "privacy.json", tmp_path / "hospital.pem"
    file.write_text(statement.to_json())
    public = new_key(private)
    sign(file, statement, private)
    return file, statement, public, private


def test_it_holds_and_the_private_key_is_its_owners_alone(signed):
    file, statement, public, private = signed
    found = check_signature(file, statement, public)
    assert found.seal == statement.seal
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert b"PRIVATE" not in public.read_bytes()
    with refused("output-exists"):
        new_key(private)


def test_a_changed_statement_is_refused(signed):
    file, statement, public, _ = signed
    file.write_text(file.read_text().replace('"n": 3', '"n": 4'))
    with refused("signed-file-changed"):
        check_signature(file, statement, public)


def test_another_seal_is_refused(signed):
    file, statement, public, _ = signed
    with refused("signed-file-changed"):
        check_signature(file, replace(statement, seal="cd" * 32), public)


@pytest.mark.parametrize("field", ["signs", "seal", "date", "key", "signature"])
def test_every_field_is_signed(signed, field):
    file, statement, public, _ = signed
    values = json.loads(signature_file(file).read_text())
    values[field] = ("0" if values[field][0] != "0" else "1") + values[field][1:]
    signature_file(file).write_text(json.dumps(values))
    with refused(("signature-forged", "signature-of-other-key")):
        check_signature(file, statement, public)


def test_another_key_is_refused_though_the_signature_brings_its_own(signed, tmp_path):
    file, statement, _, _ = signed
    with refused("signature-of-other-key"):
        check_signature(file, statement, new_key(tmp_path / "stranger.pem"))


def test_the_private_key_is_no_public_one_and_the_other_way_round(signed):
    file, statement, public, private = signed
    with refused("public-key-malformed"):
        check_signature(file, statement, private)
    public.chmod(0o600)
    with refused("private-key-malformed"):
        sign(file, statement, public)


def test_a_key_that_others_may_read_and_a_statement_without_a_seal_are_refused(signed):
    file, statement, _, private = signed
    with refused("seal-missing"):
        sign(file, replace(statement, seal=""), private)
    private.chmod(0o644)
    with refused("private-key-exposed"):
        sign(file, statement, private)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 3}', "x" * 70_000])
def test_a_file_that_is_no_signature_is_refused(signed, text):
    file, statement, public, _ = signed
    signature_file(file).write_text(text)
    with pytest.raises(DposeError) as caught:
        check_signature(file, statement, public)
    assert "\n" not in str(caught.value)
    signature_file(file).unlink()
    with refused("file-missing"):
        check_signature(file, statement, public)


def test_other_kinds_of_keys_are_refused(signed, tmp_path):
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric import ec

    file, statement, _, _ = signed
    key = ec.generate_private_key(ec.SECP256R1())
    private, public = tmp_path / "ec.pem", tmp_path / "ec.pub"
    private.write_bytes(key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(key.public_key().public_bytes(to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo))
    with refused("private-key-not-ed25519"):
        sign(file, statement, private)
    with refused("public-key-not-ed25519"):
        check_signature(file, statement, public)
