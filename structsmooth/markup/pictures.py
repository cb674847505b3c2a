"""Pictures inside pages."""

from base64 import b64encode
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from structsmooth.markup.elements import Markup, element

if TYPE_CHECKING:
    from PIL.Image import Image

# Longest side of a picture in pixels, and the quality of those that are photographs.
_LONGEST, _QUALITY = 560, 82
# Blue for positive numbers and orange for negative ones, of the palette of Okabe and Ito.
_POSITIVE, _NEGATIVE = np.array([0, 114, 178]), np.array([213, 94, 0])


def picture(pixels: NDArray[np.uint8], alt: str, **attributes: str | int) -> Markup:
    """An image that is part of the page: PNG or JPEG, whichever is smaller.

    Args:
        pixels: RGB or RGBA, uint8 [H, W, 3 or 4]; images whose longer side has more than 560 pixels are made smaller.
        alt: what it shows, for those who do not see it.
        attributes: further ones of the element; see :func:`~structsmooth.markup.element`.
    """
    from PIL.Image import fromarray  # comes with Matplotlib

    image = fromarray(pixels)
    image.thumbnail((_LONGEST, _LONGEST))
    encoded = [_encoded(image, "PNG")] + ([_encoded(image, "JPEG")] if image.mode == "RGB" else [])
    width, height = image.size
    return element("img", src=min(encoded, key=len), alt=alt, **({"width": width, "height": height} | attributes))


def enlarged(pixels: NDArray[np.uint8], alt: str, factor: int) -> Markup:
    """A small image, uint8 [H, W, 3 or 4], whose pixels are shown as squares of some width; ``alt`` says what it is."""
    return picture(pixels, alt, class_="pixels", width=factor * pixels.shape[1], height=factor * pixels.shape[0])


def diverging(values: NDArray[np.float64], largest: float) -> NDArray[np.uint8]:
    """Colours of numbers [...], RGBA: blue from 0 to ``largest``, orange from 0 to −``largest``, clear at 0."""
    strength = np.clip(np.abs(values) / max(largest, 1e-300), 0, 1)[..., None]
    colour = np.where(values[..., None] > 0, _POSITIVE, _NEGATIVE)
    return np.concatenate([np.broadcast_to(colour, (*values.shape, 3)), 255 * strength], -1).astype(np.uint8)


def _encoded(image: "Image", kind: str) -> str:
    stream = BytesIO()
    image.save(stream, kind, quality=_QUALITY)
    return f"data:image/{kind.lower()};base64,{b64encode(stream.getvalue()).decode()}"
