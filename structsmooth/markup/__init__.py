"""HTML that tasks make of their examples, in which text of data never becomes markup."""

from structsmooth.markup.blocks import Block as Block
from structsmooth.markup.blocks import Drawing as Drawing
from structsmooth.markup.blocks import Matrix as Matrix
from structsmooth.markup.blocks import Table as Table
from structsmooth.markup.blocks import confusion as confusion
from structsmooth.markup.blocks import weight_table as weight_table
from structsmooth.markup.elements import Markup as Markup
from structsmooth.markup.elements import element as element
from structsmooth.markup.elements import joined as joined
from structsmooth.markup.examples import Verdict as Verdict
from structsmooth.markup.examples import alternatives as alternatives
from structsmooth.markup.examples import chips as chips
from structsmooth.markup.examples import differences as differences
from structsmooth.markup.examples import hue as hue
from structsmooth.markup.examples import swatch as swatch
from structsmooth.markup.examples import verdict as verdict
from structsmooth.markup.examples import views as views
from structsmooth.markup.pictures import diverging as diverging
from structsmooth.markup.pictures import enlarged as enlarged
from structsmooth.markup.pictures import picture as picture
