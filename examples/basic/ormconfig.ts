import 'reflect-metadata'
import { DataSource } from 'typeorm'
import { Page } from './page'

export default new DataSource({
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: [Page],
  migrations: ['migrations/*.ts'],
})
