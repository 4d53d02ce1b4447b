"""What a customer may send to hold a seat; the page and the JSON address share it, so that both refuse the same things."""

from django import forms

from ticketing.seats import split_label


class HoldForm(forms.Form):
    seat = forms.CharField(max_length=4, error_messages={"required": "seat must be given, such as B12"})
    holder = forms.CharField(max_length=100, error_messages={"required": "holder must be given: who is the seat for?"})

    def clean_seat(self) -> str:
        try:
            row, number = split_label(self.cleaned_data["seat"])
        except ValueError as fault:
            raise forms.ValidationError(str(fault)) from fault
        return f"{row}{number}"

    def first_error(self) -> str:
        return str(next(iter(self.errors.values()))[0])
