from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("ticketing", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="hold",
            name="visitor",
            field=models.UUIDField(editable=False, help_text="Whose page shows it; none for a program's.", null=True),
        ),
        migrations.AddIndex(
            model_name="hold",
            index=models.Index(fields=["visitor", "expires_at"], name="ticketing_holds_by_visitor"),
        ),
    ]
