"""Signatures of statements: Ed25519, detached, in a file beside what is signed.

    new_key(Path("hospital.pem"))                                   # 0600, and hospital.pem.pub for everybody
    sign(Path("runs/a/privacy.json"), statement, Path("hospital.pem"))
    check_signature(Path("runs/a/privacy.json"), statement, Path("hospital.pem.pub"))

What is signed is the digest of the whole file, byte for byte, and the seal that its statement names; the seal in turn
binds weights, config, card and log, or what was released (`dpose.privacy.entries`).

**What a signature shows.** That somebody who has the private key signed just this file. **What it does not show.** That
what the statement says is true; that the key belongs to the person named, which must be known from elsewhere; or when
it was signed: the date is the signer's word.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpose.errors import DposeError
from dpose.files import check_free, explain_os_error, file_bytes, file_digest, write_atomic
from dpose.privacy.fields import StatementPart, Text, statement_part
from dpose.privacy.statement import PrivacyStatement

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FORMAT = "dpose-statement-signature-1"
LARGEST = 64 * 1024
"""Bytes of a key or a signature; a larger file is neither."""


@statement_part
class Signature(StatementPart):
    """A signature as it stands in its file.

    Attributes:
        signs: SHA-256 of the file that is signed.
        seal: That the statement names.
        date: When it was signed, as the signer says, YYYY-MM-DD.
        key: The public key's 32 bytes, hexadecimal. Anyone who checks takes the key from elsewhere.
        signature: 64 bytes, hexadecimal; of all the fields before.
        format: `FORMAT`.
    """

    signs: Text
    seal: Text
    date: Text
    key: Text
    signature: Text = ""
    format: Text = FORMAT

    @property
    def message(self) -> bytes:
        """What is signed."""
        fields = {name: value for name, value in asdict(self).items() if name != "signature"}
        return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def in_file(cls, path: Path) -> Signature:
        """The signature in a file.

        Raises:
            DposeError: there is none.
        """
        try:
            values = json.loads(_small(path))
        except ValueError as error:
            raise DposeError("signature-malformed", "is no signature", str(path)) from error
        found = cls.read(values, str(path))
        if found.format != FORMAT:
            raise DposeError(
                "signature-format-unknown", f"is of a format that is not known, {found.format[:40]!r}", str(path)
            )
        return found


def signature_file(signed: Path) -> Path:
    """The place of a file's signature."""
    return signed.with_name(f"{signed.name}.sig")


def new_key(path: Path) -> Path:
    """Make a key pair: the private key (PKCS8, PEM, readable by its owner alone), and beside it the public one.

    Returns:
        The file of the public key, `path` with .pub added.

    Raises:
        DposeError: one of the files exists, or cannot be written.
    """
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        check_free(file)
    key = Ed25519PrivateKey.generate()
    write_atomic(path, key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption()), mode=0o600)
    write_atomic(public, key.public_key().public_bytes(to.Encoding.PEM, to.PublicFormat.SubjectPublicKeyInfo))
    return public


def sign(signed: Path, statement: PrivacyStatement, key_file: Path) -> Signature:
    """Sign a file that holds `statement`, and write the signature beside it.

    Raises:
        DposeError: the statement has no seal, the key is none, others may read it, or the file cannot be written.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not statement.seal:
        raise DposeError(
            "seal-missing",
            "has no seal, so that a signature would bind words and no files",
            str(signed),
            "train or release again",
        )
    content = _small(key_file)
    if key_file.stat().st_mode & 0o077:
        raise DposeError(
            "private-key-exposed", "others may read this private key", str(key_file), f"chmod 600 {key_file}"
        )
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError) as error:
        raise DposeError(
            "private-key-malformed", "is no private key", str(key_file), "make one with dpose statement key"
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise DposeError(
            "private-key-not-ed25519", "is no Ed25519 key", str(key_file), "make one with dpose statement key"
        )
    today = datetime.now(UTC).date().isoformat()
    bare = Signature(file_digest(signed), statement.seal, today, key.public_key().public_bytes_raw().hex())
    found = Signature(**{**asdict(bare), "signature": key.sign(bare.message).hex()})
    write_atomic(signature_file(signed), json.dumps(asdict(found), indent=2) + "\n")
    return found


def check_signature(signed: Path, statement: PrivacyStatement, public_key: Path) -> Signature:
    """The signature of a file that holds `statement`, checked with a key that the reader has from elsewhere.

    Raises:
        DposeError: there is none, it is another key's, the file is not the one that was signed, or it is forged.
    """
    from cryptography.exceptions import InvalidSignature

    where, key = str(signature_file(signed)), _public(public_key)
    found = Signature.in_file(signature_file(signed))
    try:
        key.verify(bytes.fromhex(found.signature), found.message)
    except (InvalidSignature, ValueError) as error:
        other = found.key != key.public_bytes_raw().hex()
        what = "is by another key than the given one" if other else "does not hold: it was altered or forged"
        raise DposeError(
            "signature-of-other-key" if other else "signature-forged", what, where, "do not rely on it"
        ) from error
    if found.signs != file_digest(signed) or found.seal != statement.seal:
        raise DposeError("signed-file-changed", "was changed after it was signed", str(signed), "do not rely on it")
    return found


def key_fingerprint(key: str) -> str:
    """A public key (hexadecimal) in short, to compare by eye."""
    return hashlib.sha256(bytes.fromhex(key)).hexdigest()[:16]


def _public(path: Path) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key: Any = load_pem_public_key(_small(path))
    except ValueError as error:
        raise DposeError(
            "public-key-malformed", "is no public key", str(path), "name the .pub file of the signer"
        ) from error
    if not isinstance(key, Ed25519PublicKey):
        raise DposeError("public-key-not-ed25519", "is no Ed25519 key", str(path))
    return key


def _small(path: Path) -> bytes:
    """A small file's content.

    Raises:
        DposeError: it cannot be read, is no file, or is too large for what it shall be.
    """
    try:
        return file_bytes(path, LARGEST)
    except FileNotFoundError as error:
        raise DposeError("file-missing", "there is no such file", str(path)) from error
    except OSError as error:
        raise explain_os_error(error, path) from error
