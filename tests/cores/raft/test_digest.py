"""Digest computes what the RFCs print, and reads every form that clients and servers write."""

import pytest

from appliance.cores.raft.digest import (
    MD5,
    SHA256,
    Authorization,
    Challenge,
    DigestMalformed,
    accept_of,
    challenges_of,
    decode_authorization,
    encode_authorization,
    encode_challenge,
    hashed,
    parameters_of,
    response_of,
    secret_of,
    usable_challenges,
)

URI = "/GarlicFarm/farm/1/websocket"
NONCE = "bm9uY2UtZXhhbXBsZS0wMQ=="
FIRST = ("00000001", "00112233445566778899aabb")
SECOND = ("00000002", "ffeeddccbbaa998877665544")
KNOWN = {
    MD5: (
        "93c0df79663892dc231f5fa11328c267",
        "2d7f2791ba44353a53d0b03bf7eed65a",
        "a132eefe58bba46b1aa57ad095ca5370",
        "6bff07ecefa2077d6da9fd57a15e0f80",
        "6a70f759591d981e302f820e7bac7c82",
    ),
    SHA256: (
        "17e061e5d06c136c71fcc1dcb70cc60a3358f4f87aa6ff44dc84a125980649fb",
        "2b685bb3d0bb4d41f26388a6fb0a6645712d415af0ec186049fabc24d0bc0577",
        "b67f1f38dfe445e5fb050ee37f050b1a47b3cbe3c7fae988613f99782bd9f3f3",
        "4ae2528685caedec71d852ca89b73357ce2025e9cde305a20acc2827c4024238",
        "be420c2877e700975f48eb4bc0e6b9e8ab9fb1195f81f50e92ffeda1f83cb2f5",
    ),
}


@pytest.mark.parametrize("algorithm", [MD5, SHA256])
def test_the_known_answers_of_the_protocol(algorithm: str) -> None:
    secret, request, first, second, server = KNOWN[algorithm]
    made = secret_of(algorithm, username="node3", realm="GarlicFarm", password="correct horse")
    assert made == secret
    assert hashed(algorithm, f"GET:{URI}") == request
    for (nc, cnonce), answer in ((FIRST, first), (SECOND, second)):
        assert response_of(algorithm, secret, nonce=NONCE, nc=nc, cnonce=cnonce, uri=URI) == answer
    nc, cnonce = FIRST
    proof = response_of(algorithm, secret, nonce=NONCE, nc=nc, cnonce=cnonce, uri=URI, method="")
    assert proof == server


def test_the_example_of_rfc_2617_section_3_5() -> None:
    secret = secret_of(
        MD5, username="Mufasa", realm="testrealm@host.com", password="Circle Of Life"
    )
    answer = response_of(
        MD5,
        secret,
        nonce="dcd98b7102dd2f0e8b11d0f600bfb0c093",
        nc="00000001",
        cnonce="0a4f113b",
        uri="/dir/index.html",
    )
    assert answer == "6629fae49393a05397450978507c4ef1"


@pytest.mark.parametrize(
    ("algorithm", "wanted"),
    [
        (MD5, "8ca523f5e9506fed4657c9700eebdbec"),
        (SHA256, "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_examples_of_rfc_7616_section_3_9_1(algorithm: str, wanted: str) -> None:
    secret = secret_of(
        algorithm, username="Mufasa", realm="http-auth@example.org", password="Circle of Life"
    )
    answer = response_of(
        algorithm,
        secret,
        nonce="7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
        nc="00000001",
        cnonce="f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ",
        uri="/dir/index.html",
    )
    assert answer == wanted


def test_the_accept_key_of_rfc_6455() -> None:
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


PROOF = Authorization(
    username="node3",
    realm="GarlicFarm",
    nonce=NONCE,
    uri=URI,
    response=KNOWN[SHA256][2],
    algorithm=SHA256,
    nc=FIRST[0],
    cnonce=FIRST[1],
    opaque="x",
)


def test_an_authorization_is_written_with_bare_algorithm_qop_and_count() -> None:
    text = encode_authorization(PROOF)
    assert ", algorithm=SHA-256, qop=auth, nc=00000001, " in text
    assert decode_authorization(text) == PROOF


def test_quoted_forms_odd_blanks_and_odd_case_are_read_too() -> None:
    text = encode_authorization(PROOF)
    for bare in ("algorithm=SHA-256", "qop=auth", "nc=00000001"):
        name, _, value = bare.partition("=")
        text = text.replace(bare, f'{name.upper()}="{value}"')
    assert decode_authorization(text.replace(", ", ",\t ").replace("Digest", "dIgEsT")) == PROOF


def test_an_absent_algorithm_means_md5() -> None:
    found = decode_authorization(encode_authorization(PROOF).replace("algorithm=SHA-256, ", ""))
    assert isinstance(found, Authorization)
    assert found.algorithm == MD5


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (("Digest", "Basic"), "scheme_refused"),
        (("qop=auth, ", ""), "qop_missing"),
        (("qop=auth,", "qop=auth-int,"), "qop_refused"),
        (("SHA-256", "SHA-256-sess"), "algorithm_refused"),
        (("SHA-256", "SHA-512-256"), "algorithm_refused"),
        (("qop=auth", "userhash=true, qop=auth"), "userhash_refused"),
    ],
)
def test_what_is_not_spoken_is_refused_by_name(change: tuple[str, str], word: str) -> None:
    assert decode_authorization(encode_authorization(PROOF).replace(*change)) == word


@pytest.mark.parametrize(
    "change",
    [
        ('realm="GarlicFarm"', 'realm="GarlicFarm'),
        ("nc=00000001", "nc=1"),
        ("nc=00000001", "nc=0000000G"),
        ("nc=00000001", "nc=0000000A"),
        ("nc=00000001", ""),
        ("nc=00000001", "nc"),
        ('cnonce="00112233445566778899aabb", ', ""),
        ("qop=auth", "qop=auth, qop=auth"),
    ],
)
def test_broken_fields_are_malformed(change: tuple[str, str]) -> None:
    with pytest.raises(DigestMalformed):
        decode_authorization(encode_authorization(PROOF).replace(*change))


def test_several_challenges_in_one_field_or_in_several() -> None:
    one = Challenge("farm", "n1", "o", SHA256)
    two = Challenge("farm", 'n"2', "o", MD5, stale=True)
    lines = [encode_challenge(one), encode_challenge(two)]
    assert usable_challenges(lines) == [one, two]
    assert usable_challenges([", ".join(lines)]) == [one, two]
    mixed = f'Basic realm="a, Digest b", {lines[0]}, Negotiate'
    assert usable_challenges([mixed]) == [one]


@pytest.mark.parametrize(
    "value",
    [
        'Digest realm="r", nonce="n"',
        'Digest realm="r", nonce="n", qop="auth-int"',
        'Digest realm="r", nonce="n", qop="auth", algorithm=MD5-sess',
        'Digest realm="r", qop="auth"',
        'Basic realm="r"',
    ],
)
def test_challenges_that_are_not_spoken_are_passed_over(value: str) -> None:
    assert usable_challenges([value]) == []


@pytest.mark.parametrize("value", ["a=1", 'Digest realm="', "Digest =", "Digest a=1, a=2", "é"])
def test_broken_challenges_are_malformed(value: str) -> None:
    with pytest.raises(DigestMalformed):
        challenges_of(value)
    assert parameters_of("") == {}
