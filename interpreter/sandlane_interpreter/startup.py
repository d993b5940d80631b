"""What a Python kernel shows beside text and pictures: the data of a DataFrame as
`e2b/data`, and the data of a chart as `e2b/chart`.

pandas and matplotlib are imported by the user's code alone, since an idle kernel is to
stay small and a first cell quick.
"""

import sys
from datetime import date, datetime, time

from IPython.core.formatters import BaseFormatter
from IPython.display import display
from traitlets import ObjectName, Unicode


class _Data(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = (dict,)


class _Chart(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = (dict,)

    def __call__(self, obj):
        # matplotlib's inline backend takes figures out of every formatter's list of types.
        if any((t.__module__, t.__name__) == ("matplotlib.figure", "Figure") for t in type(obj).__mro__):
            return _figure(obj)
        return super().__call__(obj)


def install(shell):
    """Adds the two formats to a kernel's shell, and makes `Image.show` of Pillow show the
    picture as a result. Call it once, before the first cell."""
    formatters = shell.display_formatter.formatters
    formatters["e2b/data"] = data = _Data(parent=shell.display_formatter)
    formatters["e2b/chart"] = _Chart(parent=shell.display_formatter)
    data.for_type_by_name("pandas.core.frame", "DataFrame", _frame)
    data.for_type_by_name("pandas", "DataFrame", _frame)  # its name since pandas 3
    shell.display_formatter.active_types += [f for f in ("e2b/data", "e2b/chart") if f not in shell.display_formatter.active_types]
    sys.meta_path.insert(0, _ShowsImages())


def _frame(frame):
    try:
        return {str(name): [_cell(v) for v in column] for name, column in frame.to_dict(orient="list").items()}
    except Exception:  # a frame that cannot be read still has its text and its table
        return None


def _cell(value):
    try:
        return _plain(value)
    except Exception:  # such as a list that has itself
        return str(value)


def _plain(value):
    """Returns a value that JSON has: times as ISO 8601, numbers and arrays of numpy as
    Python's, what is not a number as None."""
    if isinstance(value, (date, datetime, time)):
        return None if value != value else value.isoformat()
    if hasattr(value, "tolist"):  # an array, a tensor, a series, or a number of numpy
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, float) and value != value:
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _figure(figure):
    from e2b_charts import chart_figure_to_dict

    try:
        return chart_figure_to_dict(figure) or None
    except Exception:  # a figure that e2b_charts cannot read still has its picture
        return None


class _ShowsImages:
    """Finds no module. It waits for the first import of PIL.ImageShow, and then registers
    the kernel as the viewer of pictures."""

    def find_spec(self, name, path=None, target=None):
        if name != "PIL.ImageShow":
            return None
        sys.meta_path.remove(self)
        from PIL import ImageShow

        class Viewer(ImageShow.Viewer):
            def show(self, image, **options):
                display(image)
                return 1

        ImageShow.register(Viewer(), order=0)
        return ImageShow.__spec__
