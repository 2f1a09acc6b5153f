const { DataSource } = require('typeorm')
const { withUniqueText } = require('typeorm-unique-text')
const { Page } = require('./page')

exports.dataSource = withUniqueText(
  new DataSource({
    type: 'postgres',
    url: process.env.DATABASE_URL,
    entities: [Page],
    migrations: ['migrations/*.js'],
  }),
)
