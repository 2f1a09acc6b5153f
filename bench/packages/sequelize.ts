import {
  type CreationOptional,
  DataTypes,
  type InferAttributes,
  type InferCreationAttributes,
  Model,
  Sequelize,
} from 'sequelize'
import type { Answer, PeerFactory } from '../peer'

const answerOf = ({ id, url }: { id: number; url: string }, created: boolean | undefined): Answer => ({
  id: String(id),
  text: url,
  created,
})

/** `findOrCreate`, which takes a transaction and a temporary function for a row that is missing. */
export const sequelize: PeerFactory = {
  name: 'Sequelize: findOrCreate',
  open: async ({ url: address, poolSize }) => {
    const database = new Sequelize(address, { logging: false, pool: { max: poolSize, idle: 3_600_000 } })
    class Page extends Model<InferAttributes<Page>, InferCreationAttributes<Page>> {
      declare id: CreationOptional<number>
      declare url: string
      declare title: CreationOptional<string | null>
    }
    Page.init(
      {
        id: { type: DataTypes.INTEGER, primaryKey: true, autoIncrement: true },
        url: { type: DataTypes.TEXT, allowNull: false, unique: true },
        title: { type: DataTypes.TEXT },
      },
      { sequelize: database, tableName: 'sequelize', timestamps: false },
    )
    await Page.sync()
    return {
      name: sequelize.name,
      table: 'sequelize',
      findOrCreate: async (url) => {
        const [page, created] = await Page.findOrCreate({ where: { url } })
        return answerOf(page, created)
      },
      find: async (url) => {
        const page = await Page.findOne({ where: { url } })
        return page && answerOf(page, false)
      },
      inTransaction: async (url) =>
        await database.transaction(async (transaction) => {
          const [page, created] = await Page.findOrCreate({ where: { url }, transaction })
          return answerOf(page, created)
        }),
      findOrCreateMany: async (urls) => {
        const rows = urls.map((url) => ({ url }))
        const pages = await Page.bulkCreate(rows, { updateOnDuplicate: ['url'], returning: true })
        return pages.map((page) => answerOf(page, undefined))
      },
      fill: async (urls) => {
        await Page.bulkCreate(urls.map((url) => ({ url })))
      },
      close: async () => {
        await database.close()
      },
    }
  },
}
