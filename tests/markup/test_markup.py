"""Text never becomes markup, and what tasks share to draw their examples."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from structsmooth.markup import Markup, alternatives, chips, diverging, element, joined, picture


def test_text_is_escaped_wherever_it_enters():
    evil = "<script>\"&'</script>"
    made = element("p", evil, joined([evil]), title=evil)
    assert "<script>" not in made
    assert made == (
        '<p title="&lt;script&gt;&quot;&amp;&#x27;&lt;/script&gt;">'
        + 2 * "&lt;script&gt;&quot;&amp;&#x27;&lt;/script&gt;"
        + "</p>"
    )


def test_elements_are_not_escaped_again():
    inner = element("b", "1 < 2")
    assert element("p", inner, " & ") == "<p><b>1 &lt; 2</b> &amp; </p>"
    assert isinstance(joined([inner]), Markup)


def test_attributes_have_hyphens_and_may_be_absent():
    assert element("img", class_="a", aria_label="b", style=None) == '<img class="a" aria-label="b">'


def test_strings_made_of_markup_are_text_again():
    """Whatever Python makes of markup and text is escaped: nothing vouches for it."""
    assert element("p", Markup("<b>") + "<i>") == "<p>&lt;b&gt;&lt;i&gt;</p>"


@pytest.mark.parametrize("channels", [3, 4])
def test_pictures_keep_their_pixels(channels):
    pixels = np.full((4, 6, channels), 200, np.uint8)
    pixels[:2] = 50
    made = picture(pixels, "two <bands>")
    assert 'alt="two &lt;bands&gt;"' in made
    encoded = made.partition("base64,")[2].partition('"')[0]
    image = Image.open(io.BytesIO(base64.b64decode(encoded)))
    assert np.abs(np.asarray(image).astype(int) - pixels).max() <= 8


def test_large_pictures_are_made_smaller():
    noise = np.random.default_rng(0).integers(0, 256, (900, 1200, 3)).astype(np.uint8)
    made = picture(noise, "noise")
    assert 'width="560" height="420"' in made
    assert "image/jpeg" in made


def test_colours_tell_signs_and_sizes():
    colours = diverging(np.array([[2.0, 1.0, 0.0, -2.0]]), 2.0)
    assert colours[0, :, 3].tolist() == [255, 127, 0, 255]
    assert (colours[0, 0, :3] != colours[0, 3, :3]).any()
    assert diverging(np.zeros((2, 2)), 0.0)[..., 3].max() == 0


def test_alternatives_have_margins():
    made = alternatives([(2.0, "a"), (1.5, "b"), (-1.0, "<c>")], str)
    assert "-0.5</span> b" in made
    assert "-3</span> &lt;c&gt;" in made
    assert ">a<" not in made
    assert alternatives([(2.0, "a")], str) == ""


def test_chips_tell_right_wrong_and_missed():
    made = chips(["a", "b"], {"b", "c"})
    for name, kind in (("a", "wrong"), ("b", "right"), ("c", "missed")):
        assert f'aria-label="{kind}" class="sign"' in made
        assert f"</span>{name}</span>" in made.partition(f'class="chip {kind}"')[2][:90]
    assert "sign" not in chips(["a"], None)
    assert "none" in chips([], set())
