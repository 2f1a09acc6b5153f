import 'reflect-metadata'
import { DataSource, type DataSourceOptions } from 'typeorm'
import { Bookmark } from './bookmarks/bookmark.entity.js'

/** No `synchronize`: the schema comes from migrations, which `npm run migration:generate` writes. */
export const dataSourceOptions: DataSourceOptions = {
  type: 'postgres',
  url: process.env.DATABASE_URL,
  entities: [Bookmark],
  migrations: [`${import.meta.dirname}/migrations/*.js`],
}

/** For TypeORM's command line. The application's own DataSource is Nest's. */
export default new DataSource(dataSourceOptions)
