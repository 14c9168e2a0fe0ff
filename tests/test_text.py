"""Characters to integers and back, and where the text comes from."""

import re

import pytest
import torch

from attnkit.text import CharTokenizer, load_text

# CharTokenizer


def test_symbols_are_the_distinct_characters_in_sorted_order():
    tokenizer = CharTokenizer("hello world")
    assert tokenizer.symbols == [" ", "d", "e", "h", "l", "o", "r", "w"]
    assert len(tokenizer) == 8


def test_encoding_by_hand():
    tokens = CharTokenizer("hello world").encode("low")
    assert tokens.tolist() == [4, 5, 7]
    assert tokens.dtype == torch.int64


def test_decoding_by_hand():
    tokens = torch.tensor([3, 2, 4, 4, 5])
    assert CharTokenizer("hello world").decode(tokens) == "hello"


@pytest.mark.parametrize("text", ["abc", "\n \t", "naïve – “quotes” ∀x", "🙂🙃🙂", "e\u0301é"])
def test_decoding_undoes_encoding(text):
    tokenizer = CharTokenizer(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode(text).shape == (len(text),)


def test_the_order_and_number_of_characters_does_not_matter():
    assert CharTokenizer("banana").symbols == CharTokenizer("nab").symbols == ["a", "b", "n"]


def test_nothing_is_encoded_as_no_tokens_and_decoded_as_nothing():
    tokenizer = CharTokenizer("ab")
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.encode("").dtype == torch.int64
    assert tokenizer.decode(tokenizer.encode("")) == ""


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_decoding_takes_tokens_of_any_integer_dtype(dtype):
    assert CharTokenizer("abc").decode(torch.tensor([2, 0, 1], dtype=dtype)) == "cab"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_decoding_in_a_narrow_dtype_knows_more_symbols_than_it_can_count(dtype):
    symbols = "".join(chr(0x4E00 + i) for i in range(307))
    assert CharTokenizer(symbols).decode(torch.tensor([0, 101], dtype=dtype)) == symbols[0] + symbols[101]


def test_a_tokenizer_needs_a_character():
    with pytest.raises(ValueError, match=r"^text must hold at least one character, got an empty string$"):
        CharTokenizer("")


def test_unknown_characters_are_named_once_and_in_order():
    message = re.escape("text holds characters this tokenizer does not know: ['!', 'z']")
    with pytest.raises(ValueError, match=f"^{message}$"):
        CharTokenizer("abc").encode("az!cz")


@pytest.mark.parametrize("tokens", [[0, 3], [-1, 2]])
def test_tokens_must_be_symbols(tokens):
    with pytest.raises(ValueError, match=rf"^tokens must lie between 0 and 2, got {re.escape(str(tokens))}$"):
        CharTokenizer("abc").decode(torch.tensor(tokens))


@pytest.mark.parametrize("tokens", [torch.tensor(1), torch.tensor([[0, 1], [2, 0]])])
def test_tokens_must_have_one_axis(tokens):
    shape = re.escape(str(tuple(tokens.shape)))
    with pytest.raises(ValueError, match=rf"^tokens must have shape \(T,\), got {shape}$"):
        CharTokenizer("abc").decode(tokens)


# load_text


def test_the_default_text_ships_with_python_and_is_the_same_each_time():
    text = load_text()
    assert len(text) > 100_000
    assert "lambda" in text
    assert "\n" in text
    assert load_text() == text
    assert load_text(None) == text


def test_the_default_text_holds_every_topic_and_something_between_them():
    from pydoc_data.topics import topics

    text = load_text()
    assert all(topic in text for topic in topics.values())
    assert len(text) == sum(map(len, topics.values())) + len(topics) - 1


@pytest.mark.parametrize("as_type", [str, lambda path: path])
def test_a_file_is_read_as_utf_8(tmp_path, as_type):
    path = tmp_path / "text.txt"
    path.write_bytes("Zwölf Boxkämpfer – ∀x\n".encode())
    assert load_text(as_type(path)) == "Zwölf Boxkämpfer – ∀x\n"


def test_a_file_is_read_as_utf_8_where_the_machine_prefers_another_encoding(tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_bytes("Zwölf".encode())
    monkeypatch.setattr("io.text_encoding", lambda encoding, stacklevel=2: encoding or "latin-1")
    assert path.read_text() == "ZwÃ¶lf"
    assert load_text(path) == "Zwölf"


def test_a_file_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.txt"):
        load_text(tmp_path / "nothing.txt")


def test_an_empty_file_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "empty.txt"
    path.touch()
    with pytest.raises(ValueError, match=rf"^path must name a file with text in it: {re.escape(str(path))} is empty$"):
        load_text(path)


def test_a_file_in_another_encoding_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("Zwölf".encode("latin-1"))
    with pytest.raises(ValueError, match=rf"^path must name a UTF-8 file: {re.escape(str(path))}: .*utf-8"):
        load_text(path)
