const { EntitySchema } = require('typeorm')
const { uniqueTextSchema } = require('typeorm-unique-text')
const { url } = require('typeorm-unique-text/normalizers')

exports.Page = new EntitySchema(
  uniqueTextSchema(
    {
      name: 'Page',
      columns: {
        id: { type: 'integer', primary: true, generated: 'identity' },
        title: { type: 'text', nullable: true },
      },
    },
    { url: { normalize: url() } },
  ),
)
