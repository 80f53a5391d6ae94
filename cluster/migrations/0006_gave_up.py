from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('cluster', '0005_node_weights'),
    ]

    operations = [
        migrations.AddField(
            model_name='modelstanding',
            name='gave_up',
            field=models.BooleanField(default=False),
        ),
    ]
