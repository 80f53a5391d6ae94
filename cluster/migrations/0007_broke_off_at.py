from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('cluster', '0006_gave_up'),
    ]

    operations = [
        migrations.RenameField(model_name='modelstanding', old_name='changed_at', new_name='broke_off_at'),
    ]
