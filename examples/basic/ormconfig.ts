import 'reflect-metadata'
import { DataSource } from 'typeorm'
import { withUniqueText } from 'typeorm-unique-text'
import { Page } from './page'

export default withUniqueText(
  new DataSource({
    type: 'postgres',
    url: process.env.DATABASE_URL,
    entities: [Page],
    migrations: ['migrations/*.ts'],
  }),
)
