from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('cluster', '0004_replica_cpu'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='weights',
            field=models.JSONField(blank=True, default=list, help_text="What lies there of the models' weights: cluster.wire.WeightsReport."),
        ),
        migrations.AddField(
            model_name='node',
            name='weights_mark',
            field=models.CharField(blank=True, help_text="The node's own name of `weights`; empty: it does not look.", max_length=64),
        ),
    ]
