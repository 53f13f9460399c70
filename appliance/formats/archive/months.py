"""Names of months as programs write them short, in the language that they run in.

The names of the GNU C library's locales, `%b` of strftime, without a dot at their end. A name that
means different months in different languages (`lis` is October in Croatian and November in Polish)
is in no row: a date is right, or it is refused.
"""

# One row a language, from January on.
_ROWS = """
jan feb mar apr may jun jul aug sep oct nov dec
jan feb mär apr mai jun jul aug sep okt nov dez
jän feb mär apr mai jun jul aug sep okt nov dez
janv févr mars avril mai juin juil août sept oct nov déc
janv févr mars avr mai juin juil août sept oct nov déc
ene feb mar abr may jun jul ago sep oct nov dic
ene feb mar abr may jun jul ago sept oct nov dic
gen feb mar apr mag giu lug ago set ott nov dic
jan fev mar abr mai jun jul ago set out nov dez
gen febr març abr maig juny jul ag set oct nov des
jan feb mrt apr mei jun jul aug sep okt nov dec
jan feb mar apr maj jun jul aug sep okt nov dec
jan feb mars april mai juni juli aug sep okt nov des
jan feb mar apr maí jún júl ágú sep okt nóv des
tammi helmi maalis huhti touko kesä heinä elo syys loka marras joulu
jaan veebr märts apr mai juuni juuli aug sept okt nov dets
sty lut mar kwi maj cze . sie wrz paź . gru
led úno bře dub kvě čen čec . zář říj . pro
sij velj ožu tra svi . . kol ruj . stu pro
jan feb mar apr maj jun jul avg sep okt nov dec
saus vas kov bal geg birž liep rugp rugs spal lapkr gruod
jan feb mar apr máj jún júl aug sep okt nov dec
jan febr márc ápr máj jún júl aug szept okt nov dec
ian feb mar apr mai iun iul aug sep oct nov dec
oca şub mar nis may haz tem ağu eyl eki kas ara
янв фев мар апр май июн июл авг сен окт ноя дек
янв фев мар апр мая июн июл авг сен окт ноя дек
січ лют бер кві тра чер лип сер вер жов лис гру
ιαν φεβ μάρ απρ μάι ιούν ιούλ αύγ σεπ οκτ νοέ δεκ
january february march april may june july august september october november december
januar februar märz april mai juni juli august september oktober november dezember
janvier février mars avril mai juin juillet août septembre octobre novembre décembre
enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre
"""


def _table() -> dict[str, int]:
    table: dict[str, int] = {}
    for row in _ROWS.split("\n"):
        for number, word in enumerate(row.split(), 1):
            assert word == "." or table.setdefault(word, number) == number, word
    return table


_NUMBERS = _table()
_COUNTED = frozenset(str(number) for number in range(1, 13))


def month_of(word: str) -> int:
    """1 to 12 for the name of a month, short or long, also `11月` and `11월`; 0 for other words."""
    name = word.lower().rstrip(".,")
    if name[-1:] in ("月", "월") and name[:-1] in _COUNTED:
        return int(name[:-1])
    return _NUMBERS.get(name, 0)
