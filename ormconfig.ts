import 'reflect-metadata'
import { DataSource } from 'typeorm'
import { Url } from './src/url'

/** This repository's DataSource, for TypeORM's command line: it generates the migration of `Url` and runs it. */
export default new DataSource({
  type: 'postgres',
  url: process.env['DATABASE_URL'] ?? 'postgres://postgres:postgres@127.0.0.1:5432/postgres',
  entities: [Url],
  migrations: ['migrations/*.ts'],
})
