const { DataSource } = require('typeorm')
const { Page } = require('./page')

exports.dataSource = new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: [Page],
  migrations: ['migrations/*.js'],
})
